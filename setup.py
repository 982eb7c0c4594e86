"""Builds the Cython extensions of colibri_engine; everything else is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

SOURCES = sorted(Path("engine/colibri_engine").glob("_*.pyx"))

# No contraction: a fused multiply-add on one CPU and not on another would give two results.
FLAGS = [
    *("-O3", "-std=gnu11", "-pthread", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wno-psabi", "-Wno-unused-function"),
]

extensions = [
    Extension(
        f"colibri_engine.{source.stem}",
        [str(source)],
        include_dirs=["engine/colibri_engine/csrc"],
        depends=[str(header) for header in sorted(Path("engine/colibri_engine/csrc").glob("*.h"))],
        extra_compile_args=FLAGS,
        extra_link_args=["-pthread", "-lm"],
    )
    for source in SOURCES
]

setup(
    packages=[*find_packages(include=["colibri", "colibri.*"]), "colibri_engine"],
    ext_modules=cythonize(extensions, language_level=3, include_path=["engine"], nthreads=os.cpu_count()),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
