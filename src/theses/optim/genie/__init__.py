"""GENIE: steps that even out what each parameter contributes to generalisation (arXiv 2606.16301).

A model that learns from several sources takes shortcuts where few parameters bring most of the fall in loss.
:class:`GENIE` damps these: each entry of the averaged gradient is weighed by how certain its sign is and by
how much it varies, certain ones are left alone, uncertain ones get noise. :func:`osgr` is the quantity that
this follows from, the one-step generalisation ratio, for any diagonal optimiser.
"""

from theses.optim.genie.optimizer import GENIE
from theses.optim.genie.ratio import OSGRResult, one_step_ratio, osgr

__all__ = ["GENIE", "OSGRResult", "one_step_ratio", "osgr"]
