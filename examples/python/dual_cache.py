"""Fast-dLLM's dual cache, written in Python: every row in the first step of a block, then the block
alone. Gives the tokens of the built-in fast-dual."""

import numpy as np

import spa


@spa.register("my-dual")
class DualCache(spa.CachePolicy):
    def __init__(self, refresh: int = 0):
        self.refresh = refresh  # all rows again every so many steps of a block

    def begin_step(self, step):
        due = self.refresh > 0 and step.step_in_block % self.refresh == 0
        if step.step_in_block == 0 or due:
            return step.visible
        block = np.arange(step.block_begin, step.block_end)
        return np.union1d(np.intersect1d(step.visible, block), step.changed)

    def plan_layer(self, layer):
        return layer.live  # the same rows in every layer


if __name__ == "__main__":
    model = spa.Model()
    question = "not ( True and False ) or False is"
    mine = model.generate(question, cache=DualCache, block_length=16)
    theirs = model.generate(question, cache="fast-dual", block_length=16)
    print(repr(mine), "same tokens as fast-dual:", (mine.ids == theirs.ids).all())
    print(model.compare(caches=["none", "fast-dual", "my-dual", "my-dual:refresh=4"], block_length=16))
