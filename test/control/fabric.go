package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"ibup/test/fabric"
)

func commands() []command {
	return slices.Concat(
		[]command{{"help", []arg{{"command", text("NAME"), true}}, "the commands and their arguments", help}},
		fabricCommands(), hostCommands(), hcaCommands())
}

// help needs the table that it is in, so it takes no part in building it.
func help(_ *Server, v values) (Reply, error) {
	var lines []string
	for _, c := range commands() {
		if !v.has("command") || get[string](v, "command") == c.name {
			lines = append(lines, c.usage()+"  "+c.help)
		}
	}
	if lines == nil {
		return nil, fmt.Errorf("no command %q", get[string](v, "command"))
	}
	return Reply{"commands": lines}, nil
}

// smLate stands for a mode that fabric has as a method of its own.
const smLate = fabric.SMMode(0xff)

func fabricCommands() []command {
	port := arg{"port", text("NAME or GUID"), false}
	membership := choice([]string{"none", "limited", "full"}, []fabric.Membership{fabric.NotMember, fabric.Limited, fabric.Full})
	return []command{
		{"show", nil, "the SM, the ports with their counters, partitions' groups, hosts and HCAs", show},
		{"sm", []arg{
			{"mode", choice([]string{"present", "absent", "gone", "late"}, []fabric.SMMode{fabric.SMPresent, fabric.SMAbsent, fabric.SMGone, smLate}), false},
			{"after", duration, true}},
			`the subnet manager: "absent" leaves ports at Init without LIDs, "gone" leaves them Active, "late" is absent and present after a while`, setSM},
		{"sa", []arg{{"answer", boolean, false}}, "whether subnet administration answers",
			func(s *Server, v values) (Reply, error) {
				s.fabric.SetSASilent(!get[bool](v, "answer"))
				return nil, nil
			}},
		{"reregister", nil, "the SM asks all clients to register again",
			func(s *Server, _ values) (Reply, error) { s.fabric.Reregister(); return nil, nil }},
		{"prefix", []arg{{"prefix", prefix, false}, {"port", port.kind, true}},
			"the subnet prefix, of one port or of all; 0 gives a port the subnet's", setPrefix},
		{"phys", []arg{port, {"state", choice([]string{"LinkUp", "Polling", "Disabled"}, []fabric.PhysState{fabric.PhysLinkUp, fabric.PhysPolling, fabric.PhysDisabled}), false}},
			"the physical state: Polling is a cable that is not there", func(s *Server, v values) (Reply, error) {
				return s.onPort(v, func(p *fabric.Port) error { return p.SetPhys(get[fabric.PhysState](v, "state")) })
			}},
		{"logical", []arg{port, {"state", choice([]string{"auto", "Down", "Init", "Armed", "Active"}, []fabric.State{0, fabric.StateDown, fabric.StateInit, fabric.StateArmed, fabric.StateActive}), false}},
			"forces the logical state; auto ends it", func(s *Server, v values) (Reply, error) {
				return s.onPort(v, func(p *fabric.Port) error { return p.SetLogical(get[fabric.State](v, "state")) })
			}},
		{"pkeys", []arg{port, {"table", list[int64](number(`"0xffff"`, 0, 0xffff)), true}},
			"pins the P_Key table, 0 for a free entry; without a table the SM has it again", setPKeys},
		{"partition", []arg{{"pkey", pkey, false}, {"mtu", number("2048", 256, 4096), true}, {"rate", number("3", 2, 22), true},
			{"qkey", number(`"0xb1b"`, 1, 0xffffffff), true}, {"everyone", membership, true}, {"ipoib", boolean, true}},
			"makes a partition or changes what is given: MTU, rate code and Q_Key are the broadcast group's", setPartition},
		{"member", []arg{{"pkey", pkey, false}, {"as", membership, false}, {"ports", list[string](port.kind), false}},
			"gives ports, by name or GUID, a membership in a partition", setMember},
		{"remove-partition", []arg{{"pkey", pkey, false}}, "removes a partition and its broadcast group",
			func(s *Server, v values) (Reply, error) {
				s.fabric.RemovePartition(uint16(get[int64](v, "pkey")))
				return nil, nil
			}},
	}
}

func (s *Server) onPort(v values, do func(*fabric.Port) error) (Reply, error) {
	p, err := s.fabric.Port(get[string](v, "port"))
	if err != nil {
		return nil, err
	}
	return nil, do(p)
}

func setSM(s *Server, v values) (Reply, error) {
	mode := get[fabric.SMMode](v, "mode")
	if late := mode == smLate; late != v.has("after") {
		return nil, errors.New(`"after" belongs to the mode "late", and only to it`)
	} else if late {
		s.fabric.SetSMLate(get[time.Duration](v, "after"))
		return nil, nil
	}
	return nil, s.fabric.SetSM(mode)
}

func setPrefix(s *Server, v values) (Reply, error) {
	prefix := get[uint64](v, "prefix")
	if v.has("port") {
		return s.onPort(v, func(p *fabric.Port) error { p.SetPrefix(prefix); return nil })
	}
	if prefix == 0 {
		return nil, errors.New("0 is no subnet's prefix")
	}
	s.fabric.SetSubnetPrefix(prefix)
	return nil, nil
}

func setPKeys(s *Server, v values) (Reply, error) {
	return s.onPort(v, func(p *fabric.Port) error {
		if !v.has("table") {
			return p.SetPKeys(nil)
		}
		table := []uint16{}
		for _, k := range get[[]int64](v, "table") {
			table = append(table, uint16(k))
		}
		return p.SetPKeys(table)
	})
}

func setPartition(s *Server, v values) (Reply, error) {
	key := uint16(get[int64](v, "pkey"))
	pt, _ := s.fabric.Partition(key)
	pt.MTU = int(or(v, "mtu", int64(pt.MTU)))
	pt.Rate = fabric.Rate(or(v, "rate", int64(pt.Rate)))
	pt.QKey = uint32(or(v, "qkey", int64(pt.QKey)))
	pt.Everyone = or(v, "everyone", pt.Everyone)
	pt.NoIPoIB = !or(v, "ipoib", !pt.NoIPoIB)
	return nil, s.fabric.SetPartition(key, pt)
}

// setMember takes names of ports, and GUIDs also of ports that are yet to come.
func setMember(s *Server, v values) (Reply, error) {
	var guids []fabric.GUID
	for _, name := range get[[]string](v, "ports") {
		g, err := fabric.ParseGUID(name)
		if err != nil {
			p, err := s.fabric.Port(name)
			if err != nil {
				return nil, err
			}
			g = p.Config().GUID
		}
		guids = append(guids, g)
	}
	return nil, s.fabric.SetMember(uint16(get[int64](v, "pkey")), get[fabric.Membership](v, "as"), guids...)
}

func show(s *Server, _ values) (Reply, error) {
	ports := []Reply{}
	for _, p := range s.fabric.Ports() {
		i, c := p.Info(), p.Counters()
		drops := map[string]uint64{}
		for why, n := range c.Drops {
			drops[why.String()] = n
		}
		ports = append(ports, Reply{
			"name": p.Config().Name, "guid": i.GUID.String(), "link": i.Link.String(),
			"state": i.State.String(), "phys": i.Phys.String(), "lid": i.LID, "sm_lid": i.SMLID,
			"prefix": fmt.Sprintf("%#x", i.Prefix), "pkeys": hexKeys(i.PKeys), "mtu": i.MTU,
			"xmit_packets": c.XmitPackets, "rcv_packets": c.RcvPackets, "drops": drops,
		})
	}
	groups := []Reply{}
	for _, g := range s.fabric.Groups() {
		groups = append(groups, Reply{
			"mgid": g.MGID.String(), "mlid": fmt.Sprintf("%#04x", g.MLID), "pkey": fmt.Sprintf("%#04x", g.PKey),
			"mtu": g.MTU, "rate_mbps": g.Rate.Mbps(), "qkey": fmt.Sprintf("%#x", g.QKey), "members": g.Members,
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Reply{"sm": s.fabric.SM().String(), "ports": ports, "groups": groups, "hosts": sortedKeys(s.hosts), "hcas": sortedKeys(s.hcas)}, nil
}

func sortedKeys[T any](m map[string]T) []string {
	return append([]string{}, slices.Sorted(maps.Keys(m))...) // never nil: [] in JSON
}

// hexKeys shows a table up to its last entry that is not free.
func hexKeys(table []uint16) []string {
	all, used := []string{}, 0
	for i, k := range table {
		all = append(all, fmt.Sprintf("%#04x", k))
		if k != 0 {
			used = i + 1
		}
	}
	return all[:used]
}

func hostCommands() []command {
	host := arg{"host", text("NAME"), false}
	ip := arg{"ip", address, false}
	onHost := func(do func(*fabric.Host, values) error) func(*Server, values) (Reply, error) {
		return func(s *Server, v values) (Reply, error) {
			h, err := s.host(get[string](v, "host"))
			if err != nil {
				return nil, err
			}
			return nil, do(h, v)
		}
	}
	return []command{
		{"host", []arg{{"name", text("NAME"), false}, {"guid", guid, false}, ip, {"pkey", pkey, true}},
			"adds an IPoIB host without a guest: it answers ARP and ping", addHost},
		{"host-answer", []arg{host, {"answer", boolean, false}}, "false: the host is down, with its link up",
			onHost(func(h *fabric.Host, v values) error { h.SetAnswering(get[bool](v, "answer")); return nil })},
		{"host-claim", []arg{host, ip}, "the host answers for this address too: a duplicate",
			onHost(func(h *fabric.Host, v values) error { return h.Claim(get[netip.Addr](v, "ip")) })},
		{"host-release", []arg{host, ip}, "undoes host-claim",
			onHost(func(h *fabric.Host, v values) error { h.Release(get[netip.Addr](v, "ip")); return nil })},
		{"ping", []arg{host, ip, {"size", number("56", 0, 4064), true}, {"within", duration, true}},
			"pings from a host, within 5s if nothing else is said",
			func(s *Server, v values) (Reply, error) {
				return onHost(func(h *fabric.Host, v values) error {
					ctx, cancel := context.WithTimeout(s.ctx, or(v, "within", 5*time.Second))
					defer cancel()
					return h.PingSize(ctx, get[netip.Addr](v, "ip"), int(or(v, "size", int64(56))))
				})(s, v)
			}},
	}
}

func addHost(s *Server, v values) (Reply, error) {
	h, err := s.fabric.AddHost(fabric.HostConfig{
		Name: get[string](v, "name"), GUID: get[fabric.GUID](v, "guid"),
		IP: get[netip.Addr](v, "ip"), PKey: uint16(get[int64](v, "pkey")),
	})
	if err != nil {
		return nil, err
	}
	s.AddHost(h)
	return nil, nil
}
