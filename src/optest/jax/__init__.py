"""Backend that runs JAX's public functions; only :mod:`optest.jax.backend` and the operators import JAX."""
