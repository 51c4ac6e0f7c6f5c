"""Compilations of ranks: who compiles alone."""
