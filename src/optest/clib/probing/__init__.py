"""How often and under which conditions one case is called in C, and what these calls show."""
