"""The network description for plugins: `colibri_engine.spec` under a public name of the library."""

from colibri_engine.spec import (
    GLU,
    GQA,
    ArchSpec,
    ExpertGLU,
    Layer,
    MoE,
    Norm,
    QKNorm,
    Rope,
    SoftmaxRouter,
    TensorLike,
    integer,
    number,
    require,
    rope_theta,
    validate,
)

__all__ = [
    "GLU",
    "GQA",
    "ArchSpec",
    "ExpertGLU",
    "Layer",
    "MoE",
    "Norm",
    "QKNorm",
    "Rope",
    "SoftmaxRouter",
    "TensorLike",
    "integer",
    "number",
    "require",
    "rope_theta",
    "validate",
]
