"""Operations on arrays, each defined by `reference` and computed by a backend."""
