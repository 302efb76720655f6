"""A learning rate for each type of transformer block (arXiv 2502.19002).

Embeddings, query-key, feed-forward, value-output and norm parameters of a transformer differ in sharpness by
orders of magnitude. A flat block bears a larger learning rate than the sharpest, which sets the limit of the
one global rate: :func:`blockwise_groups` gives it one, :func:`block_sharpness` measures whether the paper's
ratios suit a model.
"""

from theses.optim.blockwise_lr.adam_mini import AdamMini
from theses.optim.blockwise_lr.adamw import BlockwiseAdamW
from theses.optim.blockwise_lr.blocks import BLOCKS, FUSED, PAPER_RATIOS, classify
from theses.optim.blockwise_lr.groups import blockwise_groups, blockwise_schedule, trainer_optimizers
from theses.optim.blockwise_lr.sharpness import SharpnessReport, block_sharpness, suggest_ratios

__all__ = [
    "BLOCKS",
    "FUSED",
    "PAPER_RATIOS",
    "AdamMini",
    "BlockwiseAdamW",
    "SharpnessReport",
    "block_sharpness",
    "blockwise_groups",
    "blockwise_schedule",
    "classify",
    "suggest_ratios",
    "trainer_optimizers",
]
