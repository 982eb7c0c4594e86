"""The built-in model families, one package each, loaded through the same hooks as any plugin."""
