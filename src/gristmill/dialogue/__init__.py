"""What models write -> reasoning, tool calls and text; tools and conversations -> what models read (Harmony).

`ChatFormat` is the face of it for one model: `make_parser` and `DialogueReader` read an answer, `detect` says in which
format, `answer_grammar` constrains it."""
