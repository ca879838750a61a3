package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parentPKey is the default partition with the full-membership bit: the parent
// interface itself and not a child.
const parentPKey = 0xffff

// fullMember is the membership bit of a P_Key (InfiniBand Architecture
// Specification, volume 1, 10.9.1).
const fullMember = 0x8000

const guidHint = "write the 16 digits that `ibup status` shows, such as PortGUID=0x506b4b0300a1b2c2"

// parseGUID takes the ways in which a port GUID is printed by the tools there
// are: 506b4b0300a1b2c2, 0x506b4b0300a1b2c2, 506b:4b03:00a1:b2c2 (sysfs) and
// 50:6b:4b:03:00:a1:b2:c2 (the end of an IPoIB hardware address).
func parseGUID(v string) (uint64, *fault) {
	digits, groups := strings.ToLower(v), strings.Split(strings.ToLower(v), ":")
	width := map[int]int{4: 4, 8: 2}[len(groups)]
	switch {
	case len(groups) == 20 && allHex(groups, 2):
		return 0, bad("write its last eight bytes, the port GUID: PortGUID=0x"+strings.Join(groups[12:], ""),
			"%s is a whole IPoIB hardware address, of which the first bytes change", v)
	case len(groups) == 8 && allHex(groups, 4):
		return 0, bad("write its second half, the port GUID: PortGUID=0x"+strings.Join(groups[4:], ""), "%s is a GID", v)
	case len(groups) == 6 && allHex(groups, 2):
		return 0, bad(guidHint, "%s is an Ethernet address", v)
	case len(groups) > 1 && width > 0 && allHex(groups, width):
		digits = strings.Join(groups, "")
	}
	digits = strings.TrimPrefix(digits, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case err != nil && !isHex(digits) || len(groups) > 1 && width == 0:
		return 0, bad(guidHint, "%q is no port GUID", v)
	case len(digits) != 16:
		return 0, bad(guidHint, "%s has %d hexadecimal digits, a port GUID has 16", v, len(digits))
	case n == 0 || n == math.MaxUint64:
		return 0, bad(guidHint, "%s is no port's GUID", v)
	}
	return n, nil
}

func allHex(groups []string, width int) bool {
	for _, g := range groups {
		if len(g) != width || !isHex(g) {
			return false
		}
	}
	return true
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }

func isDecimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// parseBDF takes a PCI address as lspci prints it, with or without the domain.
func parseBDF(v string) (string, *fault) {
	low := strings.ToLower(v)
	parts := strings.Split(low, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) == 3 {
		domain, bus := parts[0], parts[1]
		device, function, _ := strings.Cut(parts[2], ".")
		if isHex(domain) && len(domain) >= 4 && len(domain) <= 8 && isHex(bus) && len(bus) == 2 &&
			isHex(device) && len(device) == 2 && device < "20" && len(function) == 1 && function >= "0" && function <= "7" {
			return strings.Join(parts, ":"), nil
		}
	}
	return "", bad("write domain:bus:device.function as `lspci -D` shows it, such as PCI=0000:3b:00.0", "%q is no PCI address", v)
}

// isIPoIBName tells whether a name is one that ib_ipoib gives: ib and a number.
func isIPoIBName(s string) bool {
	n, found := strings.CutPrefix(s, "ib")
	return found && isDecimal(n)
}

func isDeviceName(s string) bool {
	const alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= 63 && strings.ContainsRune(alnum, rune(s[0])) && strings.Trim(s, alnum+"_.-") == ""
}

func parseDevice(v string) (string, *fault) {
	const hint = "write a name of /sys/class/infiniband, such as Device=mlx5_0"
	if isIPoIBName(v) {
		return "", bad(hint, "%s is a network interface, not an InfiniBand device", v)
	}
	if !isDeviceName(v) {
		return "", bad(hint, "%q is no name of an InfiniBand device", v)
	}
	return v, nil
}

func parsePort(v string) (int, *fault) {
	n, err := strconv.Atoi(v)
	if err != nil || !isDecimal(v) || n < 1 || n > 254 {
		return 0, bad("the first port is Port=1", "%q is no port number", v)
	}
	return n, nil
}

// parsePKey insists on the form that cannot be misread. The kernel's create_child
// takes 8001 as decimal and names the child by the number as it was written.
func parsePKey(v string) (uint16, *fault) {
	digits, prefixed := strings.CutPrefix(strings.ToLower(v), "0x")
	if !prefixed {
		if !isHex(v) || len(v) > 5 {
			return 0, bad("write 0x and four hexadecimal digits, such as PKey=0x8001", "%q is no P_Key", v)
		}
		return 0, ambiguousPKey(v)
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case !isHex(digits):
		return 0, bad("write 0x and four hexadecimal digits, such as PKey=0x8001", "%q is no P_Key", v)
	case err != nil || n > 0xffff:
		return 0, bad("the largest is 0xffff", "%s has more than 16 bits", v)
	case n&^fullMember == 0:
		return 0, bad("leave PKey= out for the parent interface, or write a partition such as PKey=0x8001", "%s is no partition: the number 0 is reserved, and the kernel refuses it", v)
	case n&fullMember == 0:
		return 0, bad(fmt.Sprintf("write PKey=0x%04x", n|fullMember), "%s lacks the full-membership bit 0x8000, which IPoIB always uses", v)
	}
	return uint16(n), nil
}

// ambiguousPKey guesses what digits without 0x in front were meant to be.
func ambiguousPKey(v string) *fault {
	hex, _ := strconv.ParseUint(v, 16, 32)
	guess := (hex | fullMember) & 0xffff
	dec, err := strconv.ParseUint(v, 10, 16)
	if err == nil && hex > 0xffff {
		guess = dec | fullMember
	}
	hint := fmt.Sprintf("write PKey=0x%04x", guess)
	switch {
	case guess == fullMember:
		return bad("leave PKey= out for the parent interface, or write a partition such as PKey=0x8001", "%s is no partition", v)
	case err == nil:
		return bad(hint, "%s can be read as decimal (0x%04x) or hexadecimal (0x%04x)", v, dec, hex)
	}
	return bad(hint, "%s has no 0x in front", v)
}

func parseMode(v string) (Mode, *fault) {
	switch m := Mode(v); m {
	case ModeDatagram, ModeConnected:
		return m, nil
	}
	switch strings.ToLower(v) {
	case "ud":
		return "", bad("write Mode=datagram", "unknown mode %q", v)
	case "cm", "rc", "uc":
		return "", bad("write Mode=connected", "unknown mode %q", v)
	}
	return "", bad(didYouMean(v, []string{"datagram", "connected"}), "unknown mode %q", v)
}

// Limits of ib_ipoib: minimum as in ipoib_main.c of kernel 3.10, maxima from an
// InfiniBand MTU of 4096 less the IPoIB header, and from IPOIB_CM_MTU.
const (
	minMTU          = 72
	minMTUv6        = 1280 // RFC 8200
	maxMTUDatagram  = 4092
	maxMTUConnected = 65520
)

func parseMTU(v string) (int, *fault) {
	n, err := strconv.Atoi(v)
	switch {
	case !isDecimal(v):
		return 0, bad("write bytes, such as MTU=4092, or leave it out", "%q is no number", v)
	case err != nil || n > maxMTUConnected:
		return 0, bad("write at most MTU=65520 (connected) or MTU=4092 (datagram)", "%s is above 65520, the most that IPoIB carries", v)
	case n < minMTU:
		return 0, bad("leave it out for the fabric's own", "%s is below 72, the least that ib_ipoib takes", v)
	}
	return n, nil
}

func parseBool(v string) (bool, *fault) {
	switch strings.ToLower(v) {
	case "yes", "true", "on", "1":
		return true, nil
	case "no", "false", "off", "0":
		return false, nil
	}
	return false, bad(didYouMean(v, []string{"yes", "no"}), "%q is neither yes nor no", v)
}

func parseDHCP(v string) *fault {
	on, f := parseBool(v)
	switch strings.ToLower(v) {
	case "ipv4", "ipv6", "both":
		on, f = true, nil
	}
	if on {
		return bad("write Address=, or AddressFrom= for one file on all nodes", "this version has no DHCP client")
	}
	return f
}

func parseWatch(v string) (Watch, *fault) {
	switch w := Watch(v); w {
	case WatchUntilUp, WatchAlways, WatchNever:
		return w, nil
	}
	return "", bad(didYouMean(v, []string{"until-up", "always", "never"}), "unknown value %q", v)
}

var spanUnit = map[string]time.Duration{
	"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"ms": time.Millisecond, "msec": time.Millisecond,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
}

// cutSpan takes a number and its unit from the front of a time span.
func cutSpan(s string) (number, unit, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	number = s[:len(s)-len(rest)]
	s = strings.TrimLeft(rest, " \t")
	rest = strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz")
	return number, s[:len(s)-len(rest)], strings.TrimLeft(rest, " \t")
}

// parseTimeout takes a time span as systemd writes it: "90", "60s", "2min",
// "1min 30s".
func parseTimeout(v string) (time.Duration, *fault) {
	const hint = "write a time from 1s to 1h, such as Timeout=60s or Timeout=2min"
	rest, total := v, time.Duration(0)
	for rest != "" {
		number, name, left := cutSpan(rest)
		if number == "" {
			return 0, bad(hint, "%q is no time", v)
		}
		unit, known := spanUnit[name]
		n, err := strconv.ParseUint(number, 10, 32)
		if !known {
			return 0, bad(hint, "%q is no time: unknown unit %q", v, name)
		}
		if err != nil || time.Duration(n) > time.Hour/unit || total > time.Hour {
			return 0, bad(hint, "%s is longer than an hour", v)
		}
		total, rest = total+time.Duration(n)*unit, left
	}
	switch {
	case total < time.Second:
		return 0, bad(hint, "%s is shorter than a second", v)
	case total > time.Hour:
		return 0, bad(hint, "%s is longer than an hour", v)
	}
	return total, nil
}
