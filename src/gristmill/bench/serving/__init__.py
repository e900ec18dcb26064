"""How well a server of OpenAI's API serves: prompts, load, what came when, and what that means. It knows no server."""
