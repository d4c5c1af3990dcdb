package access

import "testing"

// The maker that an invite names leads back to the actor, and an operator is never taken for a member.
func TestMakerNamesTheActor(t *testing.T) {
	for _, a := range []Actor{
		{Kind: ActorMember, Network: "net", Subject: "operator:net:olga"}, {Kind: ActorLink, ID: "link_x"},
		Operator(""), OperatorToken("optok_x", ""), OperatorWith("net", "olga", ""),
		OperatorWith("net~tag", "a:b:", ""), {Kind: ActorOperator, ID: "link_x"},
	} {
		m := a.Maker()
		if got := m.Actor(); got != a || (m.Network != "") != (a.Kind == ActorMember) {
			t.Errorf("%+v is the maker %+v, who is %+v", a, m, got)
		}
	}
}
