"""Calls of torch that a model makes, written as model cases.

A model runs once under a mode of torch's that sees every call; what is seen becomes entries of the dialect of
:mod:`optest.torch.model_cases`. It is a way to write plans: it runs no case and judges nothing.
"""
