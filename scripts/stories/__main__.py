"""Writes a file of stories, or tells how varied they are. Run: python scripts/stories OUT --count N --seed S"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> None:
    if __package__ in (None, ""):
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from stories.stats import report
    from stories.write import write_stories

    parser = argparse.ArgumentParser(prog="python scripts/stories", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="the file: .jsonl for one JSON object a line, else text")
    parser.add_argument("--count", type=int, default=1000, help="how many stories (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other stories (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="how many processes write (default 2)")
    parser.add_argument("--stats", action="store_true", help="tell how varied the stories are")
    parser.add_argument("--beside", type=Path, help="a text to compare --stats with")
    arguments = parser.parse_args()
    if arguments.out is None and not arguments.stats:
        parser.error("name a file to write, or give --stats")
    stories = write_stories(arguments.out, arguments.count, arguments.seed, arguments.processes)
    if arguments.stats:
        print(report(stories, arguments.beside))


if __name__ == "__main__":
    main()
