"""Contracts that are ready to be used, one module for each provider or standard.

Each module keeps what the provider documents beside what follows from it, with the source and the day on which it was
read. Where the documentation does not say, the contract takes the worst for true: a key that is kept for no time, an
answer that may be repeated, a look-up that proves nothing when it does not find.

A deployment names a module's ``CONTRACTS`` in SIGNALBOX_CONTRACTS, or its own tuple of what a module's functions
make, where there is something that only the deployment knows. docs/contracts.md lists them.
"""
