"""The cache of image features, by threads that see different states of the tower."""

import threading

import torch

from hf_vlm_rl.policy.images.feature_cache import FeatureCache
from hf_vlm_rl.policy.images.image_features import Features


class State:
    """A state of a tower, by a number."""

    def __init__(self, number: int):
        self.number = number

    def equals(self, other) -> bool:
        return other is not None and other.number == self.number


def test_features_of_an_old_state_are_not_stored_behind_the_back_of_a_new_one():
    cache, threads = FeatureCache(), []

    class Slow(Features):
        """Features that are copied while another thread sees the tower's next state."""

        def clone(self):
            threads.append(threading.Thread(target=cache.lookup, args=(State(2), [7])))
            threads[0].start()
            threads[0].join(0.5)  # it ends here, or when the features are stored
            return super().clone()

    _, generation = cache.lookup(State(1), [7])
    cache.store({7: Slow({"pooler_output": torch.ones(2, 3)})}, generation)
    threads[0].join()
    assert cache.lookup(State(2), [7])[0] == {}
