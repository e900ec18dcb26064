"""Gets an answer that is JSON of a given shape, whatever the model would rather say.

python examples/json_schema.py model.gguf "Review: the soup was cold. As JSON:"
"""

import json
import sys

from gristmill import LLM, SamplingParams, StructuredOutputsParams

SCHEMA = {
    "type": "object",
    "properties": {
        "sentiment": {"enum": ["good", "bad", "mixed"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["sentiment", "stars"],
    "additionalProperties": False,
}


def main(model: str, prompt: str) -> None:
    shape = StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True)
    params = SamplingParams(temperature=0, max_tokens=64, structured_outputs=shape)
    with LLM(model) as llm:
        answer = json.loads(llm.generate(prompt, params)[0].outputs[0].text)
    print(f"{answer['sentiment']}, {answer['stars']} of 5")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
