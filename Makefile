# The two commands a user needs are `make demo` and `make test`.
.DEFAULT_GOAL := build

.PHONY: bench-setup
bench-setup: ## fetch QEMU, kernels and guest packages into .cache
	go run ./test/cmd/bench setup
