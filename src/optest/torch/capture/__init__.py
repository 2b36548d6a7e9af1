"""Record the torch calls of a model as model cases (:mod:`optest.torch.model_cases`), to write a plan from them."""
