"""The package hands on its public names, the same ones from both places and every time."""

import hf_vlm_rl
from hf_vlm_rl import scoring


def test_public_names_are_those_of_the_whole_package_and_explained():
    for name in scoring.__all__:
        for _ in range(2):  # a submodule that loads must not take the name's place
            assert getattr(scoring, name) is getattr(hf_vlm_rl, name)
        assert f"`{name}`" in scoring.__doc__
