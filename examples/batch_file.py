"""Answers a file of prompts, one a line, and prints the answers as JSON, one a line, in the same order.

python examples/batch_file.py model.gguf prompts.txt > answers.jsonl

All prompts go through one call, so that the model works on many of them at once.
"""

import json
import sys
from pathlib import Path

from gristmill import LLM, SamplingParams


def main(model: str, file: str) -> None:
    prompts = [line for line in Path(file).read_text("utf-8").split("\n") if line.strip()]
    params = SamplingParams(temperature=0, max_tokens=64)
    with LLM(model, max_sequences=16) as llm:
        for output in llm.generate(prompts, params):
            answer = output.outputs[0]
            found = {"prompt": output.prompt, "answer": answer.text, "finish_reason": answer.finish_reason}
            print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
