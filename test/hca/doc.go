// Package hca is a ConnectX-5 channel adapter in software: the register
// interface, the firmware commands and the datagram data path that the Linux
// drivers mlx5_core, mlx5_ib and ib_ipoib use, as a PCI function for
// [ibup/test/vfiouser].
//
// Everything here was written from what the drivers' headers say about the
// hardware: include/linux/mlx5/mlx5_ifc.h (bit layout of commands, contexts
// and registers), device.h (what the device and the host share in memory),
// qp.h and cq.h (work and completion queue entries). Each layout is named once,
// in the layout*.go files, with the structure of the header it comes from.
//
// The files, from the bus inwards:
//
//	hca.go      configuration, life cycle; levers.go what a test can break
//	bar.go      BAR 0: initialization segment, doorbells
//	cmdq.go     the command queue; commands.go the table of commands
//	caps.go     what this device says it can do
//	eq.go cq.go event and completion queues
//	mkey.go     memory keys; queue.go work queues in guest memory
//	qp.go       queue pairs; send.go and receive.go the data path
//	vport.go regs.go mad.go   port state as the three query interfaces show it
//
// It is stricter than a card: what a driver does that a card would merely
// suffer is recorded, see [HCA.Violations].
package hca
