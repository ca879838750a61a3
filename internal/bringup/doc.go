// Package bringup brings one IPoIB interface up and keeps the node reachable
// until that has worked. It is a loop of three parts:
//
//	observe   one [State]: a snapshot of the machine and what this and earlier
//	          runs did (the journal)
//	decide    [Next]: one [Step], from the configuration and the State alone
//	act       do the step, then wait for an event
//
// Everything difficult is in Next, which is a pure function: the same State
// gives the same Step. A step that has taken effect is never asked for again,
// so that a run may be killed anywhere and started again. [Apply] is the model
// of what a step does to a machine; a dry run is Next and Apply in turn.
//
// When a row of Next cannot go on it gives one [Reason]: the first obstacle in
// the order in which things depend on each other (PCI, firmware, module, port
// mode, cable, subnet manager, P_Key, group join, address, peer).
package bringup
