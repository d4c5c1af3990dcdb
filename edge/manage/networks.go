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
	Namespace   string `json:"namespace"` // what its identities are known by
	RedirectURI string `json:"redirect_uri"`
	Live        bool   `json:"live"`      // live sessions are completed by it,
	Test        bool   `json:"test"`      // or test ones
	Dashboard   bool   `json:"dashboard"` // it leads into the dashboard
	Available   bool   `json:"available"` // it could be reached lately
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

// GET /manage/networks lists the identity networks. They are settings of the processes, so that nobody
// changes them here.
func (h *Handler) listNetworks(call) (answer, *problem.Problem) {
	doc := networkList{append([]Network{}, h.Networks()...)}
	return answer{status: http.StatusOK, doc: doc}, nil
}
