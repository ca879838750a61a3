package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// dracutInterface is the interface that a value of dracut's ip= names, or ""
// (dracut.cmdline(7); ip_to_var in dracut's net-lib.sh). The forms are
//
//	dhcp
//	ib0:dhcp[:mtu[:mac]]
//	address:peer:gateway:netmask:hostname:ib0:none[:mtu[:mac]]
//
// with IPv6 addresses in brackets.
func dracutInterface(v string) string {
	var fields []string
	for rest, more := v, true; more; {
		var field string
		if end := strings.Index(rest, "]:"); strings.HasPrefix(rest, "[") && end > 0 {
			field, rest = rest[:end+1], rest[end+2:]
		} else {
			field, rest, more = strings.Cut(rest, ":")
		}
		fields = append(fields, field)
	}
	methods := []string{"dhcp", "on", "any", "dhcp6", "auto6", "either6", "link6", "single-dhcp", "ibft"}
	dev := ""
	switch {
	case len(fields) == 2, len(fields) > 2 && slices.Contains(methods, fields[1]):
		dev = fields[0]
	case len(fields) > 5:
		dev = fields[5]
	}
	if !validName(dev) {
		return ""
	}
	return dev
}

// child is a partition's interface by dracut's ib.pkey=.
type child struct {
	parent, name string
	pkey         uint16
	from         Origin
}

// parseChild reads ib.pkey=PARENT.PKEY, PKEY in hexadecimal without 0x. It names
// the interface as well. nm-initrd-generator(8) has it from NetworkManager 1.32;
// dracut of EL7 does not know it.
func parseChild(a word) (child, *fault) {
	const hint = "write ib.pkey=ib0.8001"
	i := strings.LastIndexByte(a.value, '.')
	if i < 0 || !validName(a.value) || !validName(a.value[:i]) || !isHex(a.value[i+1:]) {
		return child{}, bad(hint, "%s is no interface and P_Key", quote(a.value))
	}
	parent := a.value[:i]
	n, err := strconv.ParseUint(a.value[i+1:], 16, 16)
	switch {
	case err != nil:
		return child{}, bad(hint, "the P_Key of %s has more than 16 bits", quote(a.value))
	case n&^fullMember == 0:
		return child{}, bad(hint, "the partition number 0 of %s is reserved", quote(a.value))
	case n&fullMember == 0:
		return child{}, bad(fmt.Sprintf("write ib.pkey=%s.%04x", parent, n|fullMember), "the P_Key of %s lacks the full-membership bit 0x8000", quote(a.value))
	case n == parentPKey:
		return child{}, bad("leave it out", "0xffff is the partition of %s itself", parent)
	}
	return child{parent, a.value, uint16(n), a.from}, nil
}
