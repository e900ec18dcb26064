"""What models write -> reasoning, tool calls and text; tools and conversations -> what models read (Harmony).

`make_parser` and `DialogueReader` read an answer, `detect` says in which format, `tool_grammar` forces a call."""
