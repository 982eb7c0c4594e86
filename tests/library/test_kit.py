"""Every built-in family under the test kit that plugin authors use."""

from colibri.testing import family_suite

TestGlm52 = family_suite("glm52")
TestQwen36 = family_suite("qwen36")
