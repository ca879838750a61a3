package hca

import "encoding/binary"

// A UMR request changes a memory key: a control segment, then a key context,
// then a translation list, inline or in memory (mlx5_wqe_umr_ctrl_seg in qp.h;
// mlx5_mkey_seg has the layout of mkc).
const (
	umrCtrl   = wqeCtrlSize
	umrXlt    = umrCtrl + 4 // xlt_octowords, 16 bits: entries of the list
	umrMask   = umrCtrl + 8 // mkey_mask, 64 bits
	umrKeySeg = umrCtrl + 48
	umrEnd    = umrKeySeg + contextSize
)

// Bits of mkey_mask (MLX5_MKEY_MASK_* in device.h) and what they select.
var umrFields = []struct {
	bit   uint
	field field
}{
	{0, mkcLen},
	{6, mkcStart},
	{7, mkcPD},
	{17, mkcLocalRead},
	{18, mkcLocalWrite},
	{29, mkcFree},
}

// umr applies what registration of memory may still change on a device that
// does not let it change the size of entities: state, owner and access. Other
// requests fail.
func (h *HCA) umr(w *sendWQE) byte {
	if len(w.raw) < umrEnd || binary.BigEndian.Uint16(w.raw[umrXlt:]) != 0 {
		return syndLocalQPOp
	}
	key := binary.BigEndian.Uint32(w.raw[wqeImm:])
	k, ok := h.fw.mkeys.get(key >> 8)
	if !ok {
		h.violation("UMR of memory key %#x, which does not exist", key)
		return syndLocalQPOp
	}
	mask := binary.BigEndian.Uint64(w.raw[umrMask:])
	seg := w.raw[umrKeySeg:]
	for _, f := range umrFields {
		if mask>>f.bit&1 != 0 {
			f.field.set(k.ctx[:], f.field.get(seg))
		}
	}
	if pd := mkcPD.u32(k.ctx[:]); pd != k.pd {
		ref(&h.fw.pds, k.pd, -1)
		ref(&h.fw.pds, pd, +1)
		k.pd = pd
	}
	k.free, k.start, k.len = mkcFree.is(k.ctx[:]), mkcStart.get(k.ctx[:]), mkcLen.get(k.ctx[:])
	return 0
}
