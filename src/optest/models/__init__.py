"""Whole models: do they give the same answers on a backend, and if not, which node is to blame?"""
