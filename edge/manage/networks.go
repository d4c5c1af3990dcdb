package manage

import (
	"net/http"

	"verifyd/edge/account/grant"
	"verifyd/edge/problem"
)

// Network is an identity network as this process has it.
type Network struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"` // the namespace of its identities
	RedirectURI string `json:"redirect_uri"`
	Live        bool   `json:"live"`      // live sessions are completed by it,
	Test        bool   `json:"test"`      // or test ones
	Dashboard   bool   `json:"dashboard"` // members log in to the dashboard with it
	Available   bool   `json:"available"` // it was reachable recently
}

// networkList are the networks of this process.
type networkList struct {
	Networks []Network `json:"networks"`
}

func (h *Handler) networkOperations() []operation {
	return []operation{
		{http.MethodGet, pathNetworks, "manage_networks", grant.NetworksRead, false, h.listNetworks},
	}
}

// GET /manage/networks lists the identity networks. They are settings of the processes, so they cannot be
// changed here.
func (h *Handler) listNetworks(call) (answer, *problem.Problem) {
	doc := networkList{append([]Network{}, h.Networks()...)}
	return answer{status: http.StatusOK, doc: doc}, nil
}
