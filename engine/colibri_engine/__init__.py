"""The Cython-built engine core: text or token ids in, tokens out. It knows no model family by name."""
