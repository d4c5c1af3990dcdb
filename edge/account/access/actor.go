package access

import (
	"cmp"
	"crypto/sha256"
	"strings"

	"verifyd/sessions/base32"
)

// ActorKind distinguishes kinds of actors.
type ActorKind string

// The kinds of actors.
const (
	ActorOperator ActorKind = "operator" // somebody who has the command line, or logged in as an operator
	ActorMember   ActorKind = "member"   // somebody who logged in by an identity network
	ActorLink     ActorKind = "link"     // somebody who logged in by an operator's login link
	ActorKey      ActorKind = "key"      // a program with an API key
)

// Actor is the person or program that changes something, as the audit log names them.
type Actor struct {
	Kind    ActorKind `json:"kind"`
	Network string    `json:"network,omitempty"` // of a member: the identity network's namespace,
	Subject string    `json:"subject,omitempty"` // and who they are there
	ID      string    `json:"id,omitempty"`      // of a key or a login link
	Name    string    `json:"name,omitempty"`    // for people to read; nothing depends on it
	Role    Role      `json:"role,omitempty"`    // of a login link: what it was made for
}

// Operator is the actor of the command line; name is the operator's own, if it is known.
func Operator(name string) Actor { return Actor{Kind: ActorOperator, Name: name} }

// OperatorWith is the actor of the operator's pages who proved an identity.
func OperatorWith(network, subject, name string) Actor {
	return Actor{Kind: ActorOperator, Network: network, Subject: subject, Name: name}
}

// OperatorToken is the actor of an operator token, by its id; name is the token's.
func OperatorToken(id, name string) Actor { return Actor{Kind: ActorOperator, ID: id, Name: name} }

// TokenPrefix begins the id of an operator token.
const TokenPrefix = "optok_"

// IsToken reports whether the actor is an operator by an operator token.
func (a Actor) IsToken() bool {
	return a.Kind == ActorOperator && strings.HasPrefix(a.ID, TokenPrefix)
}

// AtCommandLine reports whether the actor is an operator by having the command line.
func (a Actor) AtCommandLine() bool { return a.Kind == ActorOperator && a.Network == "" && a.ID == "" }

// String names the actor for people: a name, or a substitute.
func (a Actor) String() string {
	switch {
	case a.Kind == ActorOperator:
		return a.operator()
	case a.Kind == ActorLink:
		return LinkWords + a.ID
	case a.Kind == ActorKey:
		return "API key " + a.ID
	case a.Name != "":
		return a.Name
	default:
		return Identity{a.Network, a.Subject}.String()
	}
}

func (a Actor) operator() string {
	switch {
	case a.IsToken():
		return "operator token " + a.Name + " (" + a.ID + ")"
	case a.Name != "":
		return "operator " + a.Name
	case a.Network != "":
		return "operator " + Identity{a.Network, a.Subject}.String()
	case a.ID != "":
		return "operator by login link " + a.ID
	default:
		return "operator"
	}
}

// Identity returns a member's or an operator's identity as "network:subject"; empty for an actor who has
// proved none. A name is the member's own choice and may be another's, too: a log that somebody relies on
// shows both.
func (a Actor) Identity() string {
	if a.Network == "" {
		return ""
	}
	return Identity{a.Network, a.Subject}.String()
}

// operatorMaker begins the subject of a Maker who is an operator: then come an identity or a login link's id.
const operatorMaker = "operator:"

// Maker is the maker of an invite, so that the invite ends with them: a member, or without a network, so that
// nobody takes it for a member, a login link, an operator token or an operator. It is empty for the command
// line, which cannot lose its right, and for a key.
func (a Actor) Maker() Identity {
	switch {
	case a.Kind == ActorMember:
		return Identity{a.Network, a.Subject}
	case a.Kind == ActorLink, a.IsToken():
		return Identity{Subject: a.ID}
	case a.Kind == ActorOperator && !a.AtCommandLine():
		return Identity{Subject: operatorMaker + cmp.Or(a.Identity(), a.ID)}
	}
	return Identity{}
}

// Actor is the actor whose Maker this is.
func (i Identity) Actor() Actor {
	operator, is := strings.CutPrefix(i.Subject, operatorMaker)
	network, subject, identity := strings.Cut(operator, ":") // a network's namespace holds no colon
	switch {
	case i.Network != "":
		return Actor{Kind: ActorMember, Network: i.Network, Subject: i.Subject}
	case is && identity:
		return OperatorWith(network, subject, "")
	case is || i.Subject == "" || strings.HasPrefix(i.Subject, TokenPrefix):
		return Actor{Kind: ActorOperator, ID: operator}
	default:
		return Actor{Kind: ActorLink, ID: i.Subject}
	}
}

// IsLink reports whether the actor came by the login link with an id.
func (a Actor) IsLink(id string) bool { return a.Kind == ActorLink && a.ID == id }

// LinkWords come before the id of a login link if it is named as an actor. Builds that stored no maker with
// an invite wrote them into its By.
const LinkWords = "login link "

// Identity is somebody at an identity network.
type Identity struct {
	Network string // the identity network's namespace
	Subject string // who they are there
}

// String returns "network:subject", as the audit log names an identity.
func (i Identity) String() string { return i.Network + ":" + i.Subject }

// Person is the identity as what bounds are counted by. No id is equal to it.
func (i Identity) Person() string { return "\x00" + i.Network + "\x00" + i.Subject }

const (
	// AddressPrefix begins the address of a member.
	AddressPrefix = "mem_"
	addressChars  = 20 // that follow
)

// Address is the identity as the address of a member in forms, URLs and commands: "mem_" and 20 characters of
// base32. No browser, shell or terminal changes it, whatever the subject holds: older builds admitted
// subjects with line ends.
func (i Identity) Address() string {
	sum := sha256.Sum256([]byte(i.Person()))
	return AddressPrefix + base32.Lower.EncodeToString(sum[:])[:addressChars]
}

// Addressed returns the identity that stands for a member's address: it has no network. See Is.
func Addressed(address string) Identity { return Identity{Subject: address} }

// Is reports whether somebody who is named is this one, by the identity itself or by its address (Addressed).
func (i Identity) Is(named Identity) bool { return named == i || named == Addressed(i.Address()) }
