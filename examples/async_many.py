"""Answers several prompts at once from asyncio, and prints each answer as it comes.

python examples/async_many.py model.gguf "The sea was" "The moon was" "The house was"
"""

import asyncio
import sys

from gristmill import LLM, SamplingParams


async def answer(llm: LLM, prompt: str) -> str:
    params = SamplingParams(temperature=0, max_tokens=40)
    output = (await llm.agenerate(prompt, params))[0]
    print(f"{prompt}{output.outputs[0].text}")
    return output.outputs[0].text


async def main(model: str, *prompts: str) -> None:
    with LLM(model) as llm:
        answers = await asyncio.gather(*(answer(llm, prompt) for prompt in prompts))
    print(f"{len(answers)} answers")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
