"""SPA-Cache as the paper prints it, written in Python: in every layer the rows whose singular proxy
turned most since they were last recomputed, up to the layer's budget. Gives the tokens of the
built-in spa with preset=paper."""

import numpy as np

import spa


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (np.einsum("ij,ij->i", a, b) / np.maximum(norms, 1e-300)).astype(np.float32)


@spa.register("my-spa")
class SpaCache(spa.CachePolicy):
    reuse = "update"  # rows that are not recomputed reuse their last update
    proxies = "spa:preset=paper"  # the proxies W_r x and the budget of each layer

    def __init__(self):
        self.kept, self.computed = {}, {}  # per layer: proxies, and the step they are of

    def plan_layer(self, layer):
        step, live, now = layer.step, layer.live, layer.proxies(layer.live)
        kept = self.kept.setdefault(layer.index, np.zeros((step.num_rows, now.shape[1]), np.float32))
        computed = self.computed.setdefault(layer.index, np.zeros(step.num_rows, int))
        similarity = cosines(now, kept[live])
        similarity[similarity > 1 - 1e-6] = 1  # did not move
        similarity[np.isin(live, step.never_computed)] = -1
        count = len(live) if step.step == 0 else max(1, int(layer.budget * len(live)))
        # Ties go to the row that has waited longest.
        places = np.lexsort((live, computed[live], similarity))[:count]
        rows = live[places]
        kept[rows], computed[rows] = now[places], step.step
        return rows


if __name__ == "__main__":
    model = spa.Model()
    question = "not ( True and False ) or False is"
    mine = model.generate(question, cache=SpaCache)
    theirs = model.generate(question, cache="spa:preset=paper")
    print(repr(mine), "same tokens as spa:preset=paper:", (mine.ids == theirs.ids).all())
    print(model.compare(caches=["none", "spa:preset=paper", "my-spa"]))
