"""Problems on which several methods are tried: objectives that count their calls, stochastic problems, games,
image domains, graphs.

Each says exactly what it costs to ask.
"""
