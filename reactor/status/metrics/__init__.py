"""What Prometheus scrapes: every family declared once, counted from the bus, read from the state at each scrape.

``families`` is the catalogue, ``tally`` and ``reactions`` count events, ``collect`` reads what is so now,
``exposition`` writes it (the one importer of the client library), ``metrics`` listens, ``page`` makes docs/metrics.md.
Gauges come from the state, never from book-keeping of their own, so they cannot drift from what ``status`` shows.
"""
