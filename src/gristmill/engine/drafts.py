class PromptLookup:
    def propose(self, tokens: list[int], n: int) -> list[int]:
        return []

    def learn(self, n_drafted: int, n_accepted: int) -> None: ...
