# The two commands a user needs are `make demo` and `make test`.
.DEFAULT_GOAL := build
