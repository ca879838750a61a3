# The two commands a user needs are `make demo` and `make test`.
.DEFAULT_GOAL := build

.PHONY: bench-setup
bench-setup: ## fetch QEMU, kernels and guest packages into .cache
	go run ./test/cmd/bench setup

# Where a distribution puts things; the units name /usr/sbin/ibup.
.PHONY: install
install: build ## install below $(DESTDIR)/
	install -D -m 0755 bin/ibup $(DESTDIR)/usr/sbin/ibup
	install -D -m 0644 rules/60-ibup.rules $(DESTDIR)/usr/lib/udev/rules.d/60-ibup.rules
	install -D -m 0644 -t $(DESTDIR)/usr/lib/systemd/system rpm/systemd/*.service
	install -D -m 0644 rpm/systemd/90-ibup.preset $(DESTDIR)/usr/lib/systemd/system-preset/90-ibup.preset
	install -D -m 0644 docs/man/ibup.8 $(DESTDIR)/usr/share/man/man8/ibup.8
	install -D -m 0644 rpm/ibup-example.conf $(DESTDIR)/usr/share/doc/ibup/ibup-example.conf
	install -d -m 0755 $(DESTDIR)/etc/ibup
