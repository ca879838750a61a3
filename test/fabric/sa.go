package fabric

const defaultLife = 18 // PacketLifeTime: 4.096 µs * 2^18, about a second

// sa is the endpoint of the SM's port: subnet administration at QP1.
type sa struct {
	fab  *Fabric
	port *Port
}

func (s *sa) PortChanged(Change) {}

func (s *sa) Receive(Packet) {}
