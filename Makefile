# The two commands a user needs are `make demo` and `make test`.
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules
export PATH := $(PATH):/usr/local/go/bin

COMMIT  := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Nothing of the machine, the directory or the time gets into the binary: two
# builds of one commit are the same bytes.
.PHONY: build
build: ## build bin/ibup, static and reproducible
	CGO_ENABLED=0 GOAMD64=v1 GOFLAGS= go build -trimpath -buildvcs=false \
	  -ldflags '-s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/ibup ./cmd/ibup

# Where a distribution puts things; the units name /usr/sbin/ibup.
.PHONY: install
install: build ## install below DESTDIR: program, udev rule, units, manual
	install -D -m 0755 bin/ibup $(DESTDIR)/usr/sbin/ibup
	install -D -m 0644 rules/60-ibup.rules $(DESTDIR)/usr/lib/udev/rules.d/60-ibup.rules
	install -D -m 0644 -t $(DESTDIR)/usr/lib/systemd/system rpm/systemd/*.service
	install -D -m 0644 rpm/systemd/90-ibup.preset $(DESTDIR)/usr/lib/systemd/system-preset/90-ibup.preset
	for page in docs/man/*.[578]; do \
	  install -D -m 0644 -t $(DESTDIR)/usr/share/man/man$${page##*.} $$page || exit 1; \
	done
	install -D -m 0644 rpm/ibup-example.conf $(DESTDIR)/usr/share/doc/ibup/ibup-example.conf
	install -D -m 0644 rpm/ibup.bash $(DESTDIR)/usr/share/bash-completion/completions/ibup
	install -d -m 0755 $(DESTDIR)/etc/ibup

.PHONY: test
test: lint unit scenarios ## run all tests: first those without virtual machines

.PHONY: unit
unit: ## run the tests that need no virtual machine
	go test -short ./...

# Two scenarios at a time: each machine keeps about one core busy.
.PHONY: scenarios
scenarios: bench-setup ## run the tests on real drivers in virtual machines; RUN=regexp chooses
	go test ./test/scenarios/ -v -count=1 -parallel 2 -timeout 75m -run '$(or $(RUN),.)'

.PHONY: race
race: ## run the quick tests under the race detector (needs gcc)
	CGO_ENABLED=1 go test -race -short ./...

.PHONY: bench-setup
bench-setup: ## fetch QEMU, kernels and guest packages into .cache
	go run ./test/cmd/bench setup

.PHONY: demo
demo: ## the main job: hot-plug a ConnectX into a virtual machine and see ib0 come up
	go run ./test/cmd/bench demo

.PHONY: demo-manual
demo-manual: ## the same by hand, with modprobe and ip: what ibup is held against
	go run ./test/cmd/bench demo-manual

.PHONY: bench
bench: ## measure boot to ib0 with carrier on every kernel
	go run ./test/cmd/bench times

.PHONY: fuzz
fuzz: ## fuzz every fuzz target for 10 s, or FUZZTIME
	@for f in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$f"); do \
	    echo "== $$(dirname "$$f") $$name"; \
	    go test "./$$(dirname "$$f")" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(or $(FUZZTIME),10s) || exit 1; \
	  done; \
	done

.PHONY: lint
lint: ## check formatting, suspicious code and shell scripts
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "not formatted: $$bad" >&2; exit 1; }
	go vet ./...
	@if command -v shellcheck >/dev/null; then \
	  git ls-files -z -- '*.sh' .ci/run dracut | xargs -0 grep -lZE '^#!/bin/(ba)?sh' | xargs -0r shellcheck; \
	else echo "lint: no shellcheck on this machine: scripts not checked"; fi

.PHONY: clean
clean: ## remove what was built, but not .cache
	rm -rf bin dist

.PHONY: help
help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
