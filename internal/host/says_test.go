package host

import (
	"testing"
	"time"
)

// TestClassify has a line of each kind, in the wordings of several kernels.
func TestClassify(t *testing.T) {
	const bdf = "0000:3b:00.0"
	tests := []struct {
		text string
		want KernelLine // less Text
	}{
		{"pci 0000:3b:00.0: [15b3:1017] type 00 class 0x020700", KernelLine{Kind: Enumerated, BDF: bdf}},
		{"pci 0000:3b:00.0: [15b3:1017] type 00 class 0x020700 PCIe Endpoint", KernelLine{Kind: Enumerated, BDF: bdf}},
		{"mlx5_core 0000:3b:00.0: enabling device (0140 -> 0142)", KernelLine{Kind: Enabling, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: firmware version: 16.35.2000", KernelLine{Kind: FirmwareVersion, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: wait_fw_init:285:(pid 422): Waiting for FW initialization, timeout abort in 100s", KernelLine{Kind: FirmwareWait, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: wait_fw_init:201:(pid 422): Waiting for FW pre-initializing, timeout abort in 80s (0xffffffff)", KernelLine{Kind: FirmwareWait, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: wait_fw_init:198:(pid 422): device is being removed, stop waiting for FW pre-initializing", KernelLine{Kind: Removed, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: Firmware over 10000 MS in pre-initializing state, aborting", KernelLine{Kind: FirmwareTimeout, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_function_setup:1034:(pid 69850): Firmware over 4294967296 MS in pre-initializing state, aborting", KernelLine{Kind: FirmwareTimeout, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: Missing registers BAR, aborting", KernelLine{Kind: NoBAR, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: error requesting BARs, aborting", KernelLine{Kind: ProbeError, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: Cannot enable PCI device, aborting", KernelLine{Kind: ProbeError, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: Failed initializing command interface, aborting", KernelLine{Kind: ProbeError, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: enable hca failed", KernelLine{Kind: ProbeError, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: Driver cmdif rev(5) differs from firmware's(65535)", KernelLine{Kind: ProbeError, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:03:00.0: 0000:03:00.0:handle_hca_cap:438:(pid 6016): handle_hca_cap failed", KernelLine{Kind: ProbeError, BDF: "0000:03:00.0", Module: "mlx5_core"}},
		{"mlx5_core 0000:01:00.0: mlx5_load:1068:(pid 26): Failed to alloc IRQs", KernelLine{Kind: ProbeError, BDF: "0000:01:00.0", Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_load_one failed with error code -16", KernelLine{Kind: ProbeFailed, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:c4:00.0: probe_one:2005: mlx5_pci_init failed with error code -19", KernelLine{Kind: ProbeFailed, BDF: "0000:c4:00.0", Module: "mlx5_core"}},
		{"mlx5_core: probe of 0000:3b:00.0 failed with error -12", KernelLine{Kind: ProbeFailed, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: probe with driver mlx5_core failed with error -22", KernelLine{Kind: ProbeFailed, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_cmd_check:769:(pid 413): SET_HCA_CAP(0x109) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x155842)", KernelLine{Kind: Command, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.2: wait_func:1133:(pid 515): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource", KernelLine{Kind: CommandTimeout, BDF: "0000:3b:00.2", Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: device's health compromised - reached miss count", KernelLine{Kind: Health, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: poll_health:483:(pid 0): Fatal error 1 detected", KernelLine{Kind: Health, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: synd 0xff: unrecognized error", KernelLine{Kind: Health, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:c4:00.0: print_health_info:432: PCI slot is unavailable", KernelLine{Kind: Health, BDF: "0000:c4:00.0", Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: health recovery flow aborted, PCI reads still not working", KernelLine{Kind: Health, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_health_try_recover:326:(pid 9): health recovery succeeded", KernelLine{Kind: Recovered, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.1: Port module event: module 1, Cable unplugged", KernelLine{Kind: Cable, BDF: "0000:3b:00.1", Module: "mlx5_core"}},
		{"mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature", KernelLine{Kind: CableError, BDF: "0000:5c:00.0", Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_pcie_event:299:(pid 268): Detected insufficient power on the PCIe slot (27W).", KernelLine{Kind: Power, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: mlx5_pcie_event:299:(pid 8): PCIe slot advertised sufficient power (75W).", KernelLine{Kind: Other, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: temp_warn:215:(pid 0): High temperature on sensors with bit set 0 1", KernelLine{Kind: Temperature, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: handle_hca_cap:771:(pid 420): log_max_qp value in current profile is 18, changing it to HCA capability limit (17)", KernelLine{Kind: Other, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0 ibs22f0: renamed from ib0", KernelLine{Kind: Renamed, BDF: bdf, Link: "ibs22f0", Module: "mlx5_core"}},
		{"pci 0000:3b:00.0: BAR 0: no space for [mem size 0x02000000 64bit pref]", KernelLine{Kind: BARLost, BDF: bdf}},
		{"pci 0006:03:00.2: BAR 0 [mem size 0x00800000 64bit pref]: can't assign; no space", KernelLine{Kind: BARLost, BDF: "0006:03:00.2"}},
		{"pci 0000:93:00.0: bridge window [mem size 0x3018000000 64bit pref]: can't assign; no space", KernelLine{Kind: BARLost, BDF: "0000:93:00.0"}},
		{"mlx5_core 0000:3b:00.0: can't enable device: BAR 0 [mem size 0x02000000 64bit pref] not assigned", KernelLine{Kind: BARLost, BDF: bdf, Module: "mlx5_core"}},
		{"mlx5_core 0000:3b:00.0: BAR 0 [mem size 0x02000000 64bit pref]: not assigned; can't enable device", KernelLine{Kind: BARLost, BDF: bdf, Module: "mlx5_core"}},
		{"pci 0000:3b:00.0: BAR 0: [mem 0xc8000000-0xc9ffffff 64bit pref] conflicts with 0000:af:00.0 [mem 0xc0000000-0xcfffffff 64bit pref]", KernelLine{Kind: BARLost, BDF: bdf}},
		{"pci 0006:03:00.0: BAR 0 [mem 0x6300c0000000-0x6300c1ffffff 64bit pref]: assigned", KernelLine{Kind: BARAssigned, BDF: "0006:03:00.0"}},
		{"pci 0000:3b:00.0: BAR 0: assigned [mem 0x387ffe000000-0x387fffffffff 64bit pref]", KernelLine{Kind: BARAssigned, BDF: bdf}},
		{"pci 0000:81:00.2: Failed to add to iommu group 52: -16", KernelLine{Kind: IOMMU, BDF: "0000:81:00.2"}},
		{"infiniband mlx5_0: Couldn't register device with driver model", KernelLine{Kind: IBRegister, Device: "mlx5_0"}},
		{"infiniband mlx5_0: mlx5_ib_stage_post_ib_reg_umr_init:4075:(pid 1642): mr cache init failed -12", KernelLine{Kind: IBRegister, Device: "mlx5_0"}},
		{"infiniband mlx5_0: Couldn't open port 1", KernelLine{Kind: IBMad, Device: "mlx5_0"}},
		{"infiniband mlx5_0: wait_for_async_commands:745: done with all pending requests", KernelLine{Kind: Other, Device: "mlx5_0"}},
		{"Couldn't find index for default PKey", KernelLine{Kind: DefaultPKey}},
		{"mlx5_1, 1: ipoib_intf_alloc failed -12", KernelLine{Kind: IPoIBFailed, Device: "mlx5_1"}},
		{"mlx5_0: failed to initialize port 1 (ret = -12)", KernelLine{Kind: IPoIBFailed, Device: "mlx5_0"}},
		{"mlx5_0: couldn't register ipoib port 1; error -12", KernelLine{Kind: IPoIBFailed, Device: "mlx5_0"}},
		{"ib0: failed to allocate device WQ", KernelLine{Kind: IPoIBFailed, Link: "ib0"}},
		{"ib0.8001: P_Key 0x8001 is not found", KernelLine{Kind: PKeyNotFound, Link: "ib0.8001"}},
		{"ib0: P_Key 0x8000 is Invalid", KernelLine{Kind: PKeyInvalid, Link: "ib0"}},
		{"ib0: multicast join failed for ff12:401b:ffff:0000:0000:0000:ffff:ffff, status -22", KernelLine{Kind: JoinFailed, Link: "ib0"}},
		{"ib0.8001: sendonly multicast join failed for ff12:401b:8001:0000:0000:0000:0000:0016, status -22", KernelLine{Kind: JoinFailed, Link: "ib0.8001"}},
		{"ib0: Setting Connected Mode failed, not supported by this device", KernelLine{Kind: NoConnected, Link: "ib0"}},
		{"IPv6: ADDRCONF(NETDEV_UP): ib0: link is not ready", KernelLine{Kind: LinkNotReady, Link: "ib0"}},
		{"ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready", KernelLine{Kind: LinkReady, Link: "ib0"}},
		{`workqueue: Failed to create a rescuer kthread for wq "ipoib_wq": -EINTR`, KernelLine{Kind: LoaderKilled}},
		{"mlx5_core: disagrees about version of symbol mlxfw_firmware_flash", KernelLine{Kind: SymbolVersion, Module: "mlx5_core"}},
		{"mlx5_core: Unknown symbol mlxfw_firmware_flash (err -22)", KernelLine{Kind: UnknownSymbol, Module: "mlx5_core"}},
		{"mlx5_ib: no symbol version for ib_register_device", KernelLine{Kind: NoSymbolVersion, Module: "mlx5_ib"}},
		{"mlx5_core: version magic '3.10.0-957.el7.x86_64 SMP mod_unload modversions ' should be '3.10.0-1160.el7.x86_64 SMP mod_unload modversions '", KernelLine{Kind: Vermagic, Module: "mlx5_core"}},
		{"ib_ipoib: unknown parameter 'queue' ignored", KernelLine{Kind: Parameter, Module: "ib_ipoib"}},
		{"ib_ipoib: Unknown parameter `queue'", KernelLine{Kind: Parameter, Module: "ib_ipoib"}},
		{"mlx5_core: `x' invalid for parameter `prof_sel'", KernelLine{Kind: Parameter, Module: "mlx5_core"}},
		{"Module mlx5_ib is blacklisted", KernelLine{Kind: Blacklisted, Module: "mlx5_ib"}},
		{"Loading of unsigned module is rejected", KernelLine{Kind: Signature}},
		{"mlx5_core: loading of module with unavailable key is rejected", KernelLine{Kind: Signature, Module: "mlx5_core"}},
		{"Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", KernelLine{Kind: Lockdown}},
		{"mlx5_ib: Mellanox Connect-IB Infiniband driver v5.0-0", KernelLine{Kind: Other}},
		// Lines that are not about the stack.
		{"pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200", KernelLine{}},
		{"pci 0000:00:01.0: PCI bridge to [bus 01]", KernelLine{}},
		{"Linux version 3.10.0-1160.el7.x86_64", KernelLine{}},
		{"workqueue: max_active 1024 requested for kblockd is out of range", KernelLine{}},
		{"Lockdown: swapper/0: hibernation is restricted; see man kernel_lockdown.7", KernelLine{}},
		{"mlx5_core: probe of x", KernelLine{}},
		{"", KernelLine{}},
	}
	for _, tt := range tests {
		got, ok := classify(tt.text)
		if ok != (tt.want.Kind != "") {
			t.Errorf("classify(%q) ok = %v, kind %q", tt.text, ok, got.Kind)
			continue
		}
		tt.want.Text = tt.text
		if ok && got != tt.want {
			t.Errorf("classify(%q)\n got %+v\nwant %+v", tt.text, got, tt.want)
		}
	}
}

// TestProbe follows sequences of lines as real kernels write them, a second apart.
func TestProbe(t *testing.T) {
	const (
		pre      = "mlx5_core 0000:3b:00.0: "
		firmware = pre + "firmware version: 16.35.2000"
		plugged  = "pci 0000:3b:00.0: [15b3:1017] type 00 class 0x020700"
	)
	bound := PCIFunction{BDF: "0000:3b:00.0", Driver: "mlx5_core"}
	working := bound
	working.IB = []string{"mlx5_0"}
	unbound := PCIFunction{BDF: "0000:3b:00.0"}
	tests := []struct {
		name  string
		lines []string
		fn    PCIFunction
		want  *Probe
	}{
		{"nothing said", []string{plugged}, unbound, nil},
		{"another card", []string{"mlx5_core 0000:5e:00.0: Missing registers BAR, aborting"}, unbound, nil},
		{"healthy", []string{plugged, firmware}, working, &Probe{At: 1 * time.Second}},
		{"under way", []string{firmware, pre + "Waiting for FW initialization, timeout abort in 100s (0x80000000)"}, bound,
			&Probe{Waiting: true}},
		{"firmware came", []string{firmware, pre + "Waiting for FW initialization, timeout abort in 100s"}, working, &Probe{}},
		{"firmware never came (3.10)", []string{
			firmware,
			pre + "Firmware over 10000 MS in pre-initializing state, aborting",
			pre + "mlx5_load_one failed with error code -16",
			"mlx5_core: probe of 0000:3b:00.0 failed with error -16",
		}, unbound, &Probe{Err: pre + "Firmware over 10000 MS in pre-initializing state, aborting", Errno: 16}},
		{"firmware never came (6.12)", []string{
			firmware,
			pre + "wait_fw_init:201:(pid 422): Waiting for FW pre-initializing, timeout abort in 80s (0x80000000)",
			pre + "mlx5_function_enable:1203:(pid 9): Firmware over 120000 MS in pre-initializing state, aborting",
			pre + "probe_one:1974:(pid 9): mlx5_init_one failed with error code -110",
			pre + "probe with driver mlx5_core failed with error -110",
		}, unbound, &Probe{Err: pre + "mlx5_function_enable:1203:(pid 9): Firmware over 120000 MS in pre-initializing state, aborting", Errno: 110}},
		{"no BAR", []string{
			plugged,
			pre + "Missing registers BAR, aborting",
			pre + "error requesting BARs, aborting",
			pre + "mlx5_pci_init failed with error code -19",
		}, unbound, &Probe{At: 1 * time.Second, Err: pre + "Missing registers BAR, aborting", Errno: 19}},
		{"no BAR twice", []string{
			pre + "Missing registers BAR, aborting", pre + "mlx5_pci_init failed with error code -19",
			pre + "Missing registers BAR, aborting", pre + "mlx5_pci_init failed with error code -19",
		}, unbound, &Probe{At: 2 * time.Second, Err: pre + "Missing registers BAR, aborting", Errno: 19}},
		{"no reason but the verdict", []string{"mlx5_core: probe of 0000:3b:00.0 failed with error -12"}, unbound,
			&Probe{Err: "mlx5_core: probe of 0000:3b:00.0 failed with error -12", Errno: 12}},
		{"a failure, then a success", []string{
			firmware, pre + "enable hca failed", pre + "mlx5_load_one failed with error code -5",
			"mlx5_core: probe of 0000:3b:00.0 failed with error -5",
			firmware,
		}, working, &Probe{At: 4 * time.Second}},
		{"a failure, then a probe that says nothing yet", []string{
			firmware, pre + "enable hca failed", pre + "mlx5_load_one failed with error code -5",
		}, bound, &Probe{}},
		{"a success, then a failure", []string{
			firmware, firmware, pre + "enable hca failed", pre + "mlx5_load_one failed with error code -5",
		}, unbound, &Probe{At: 1 * time.Second, Err: pre + "enable hca failed", Errno: 5}},
		{"a failure, then plugged in anew", []string{
			pre + "Missing registers BAR, aborting", pre + "mlx5_pci_init failed with error code -19", plugged,
		}, unbound, nil},
		{"registers read all ones", []string{pre + "firmware version: 65535.65535.65535"}, bound,
			&Probe{Err: pre + "firmware version: 65535.65535.65535", Dying: true}},
		{"dying at run time", []string{firmware, pre + "device's health compromised - reached miss count"}, working, &Probe{Dying: true}},
		{"recovered by itself", []string{firmware, pre + "starting health recovery flow", pre + "health recovery succeeded"}, working, &Probe{}},
		{"reloaded after it was dying", []string{firmware, pre + "PCI slot is unavailable", firmware}, working, &Probe{At: 2 * time.Second}},
		{"a refused command at run time", []string{
			firmware, pre + "mlx5_cmd_check:769:(pid 413): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x305684)",
		}, working, &Probe{}},
		{"removed while it waited", []string{
			firmware, pre + "Waiting for FW initialization, timeout abort in 100s",
			pre + "wait_fw_init:198:(pid 422): device is being removed, stop waiting for FW initialization",
		}, unbound, &Probe{Err: pre + "wait_fw_init:198:(pid 422): device is being removed, stop waiting for FW initialization"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s says
			for i, line := range tt.lines {
				s.add(time.Duration(i)*time.Second, line)
			}
			same(t, "probe", s.probe(tt.fn), tt.want)
		})
	}
}

// TestAddKeepsTheLastLines also checks that an older snapshot's lines stay.
func TestAddKeepsTheLastLines(t *testing.T) {
	var s says
	for i := range 2 * maxLines {
		s.add(time.Duration(i), "infiniband mlx5_0: again")
		if i == maxLines-1 {
			old := s.lines[:len(s.lines):len(s.lines)]
			defer func() {
				if old[0].At != 0 || old[maxLines-1].At != maxLines-1 {
					t.Error("an older snapshot's lines have changed")
				}
			}()
		}
	}
	if n := len(s.lines); n > maxLines || n < maxLines/2 {
		t.Errorf("%d lines kept", n)
	}
	if last := s.lines[len(s.lines)-1]; last.At != 2*maxLines-1 {
		t.Errorf("last line %+v", last)
	}
}

func TestAddLeavesOutAssignmentsWithoutLoss(t *testing.T) {
	var s says
	s.add(1, "pci 0000:00:01.0: BAR 0: assigned [mem 0x1-0x2]")
	s.add(2, "pci 0000:3b:00.0: BAR 0: no space for [mem size 0x02000000 64bit pref]")
	s.add(3, "pci 0000:3b:00.0: BAR 0: assigned [mem 0x1-0x2]")
	if len(s.lines) != 2 || s.lines[1].Kind != BARAssigned {
		t.Errorf("lines %+v", s.lines)
	}
}
