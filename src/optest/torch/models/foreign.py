SOURCES = {}


def of_user(x): ...
