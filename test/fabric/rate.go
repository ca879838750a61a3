package fabric

import (
	"fmt"
	"slices"
)

// Rate is a link rate as PathRecord and MCMemberRecord encode it (IBA 15.2.5.16).
type Rate uint8

// Some rates: Gb/s on the wire.
const (
	Rate10  Rate = 3
	Rate40  Rate = 7
	Rate56  Rate = 12
	Rate100 Rate = 16
	Rate200 Rate = 17
	Rate400 Rate = 21
)

// rateMbps: the encoding grew with the technology and is not in order.
var rateMbps = [...]int{
	2: 2500, 3: 10000, 4: 30000, 5: 5000, 6: 20000, 7: 40000, 8: 60000, 9: 80000, 10: 120000,
	11: 14000, 12: 56000, 13: 112000, 14: 168000, 15: 25000, 16: 100000, 17: 200000, 18: 300000,
	19: 28000, 20: 50000, 21: 400000, 22: 600000,
}

// Mbps returns the rate in Mb/s, 0 for a code that is not defined.
func (r Rate) Mbps() int {
	if int(r) < len(rateMbps) {
		return rateMbps[r]
	}
	return 0
}

// mtuBytes is the MTU encoding (IBA 14.2.5.6): 1 is 256, 5 is 4096.
var mtuBytes = []int{0, 256, 512, 1024, 2048, 4096}

func mtuCode(bytes int) (uint8, error) {
	if i := slices.Index(mtuBytes, bytes); i > 0 {
		return uint8(i), nil
	}
	return 0, fmt.Errorf("MTU %d is none of 256, 512, 1024, 2048, 4096", bytes)
}

func mtuOf(code uint8) int {
	if int(code) < len(mtuBytes) {
		return mtuBytes[code]
	}
	return 0
}

// ratesByMbps returns the defined rates in Mb/s, in order.
func ratesByMbps() []int {
	s := slices.DeleteFunc(slices.Clone(rateMbps[:]), func(m int) bool { return m == 0 })
	slices.Sort(s)
	return s
}

func rateOf(mbps int) Rate {
	if mbps == 0 {
		return 0
	}
	return Rate(slices.Index(rateMbps[:], mbps))
}
