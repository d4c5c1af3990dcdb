package network

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

// Identity is what the provider vouched for.
type Identity struct {
	Subject string // 1 to 1,024 bytes; the same for the same user at every sign-in
	// for people, chosen by the user and never to be compared; may be empty; at most 256 bytes
	DisplayName string
	// only if the provider states that it has verified it; empty otherwise; at most 254 bytes
	Email     string
	CreatedAt time.Time // when the account was made there; zero if the network does not report it
	// the groups of the identity, as the network spells them; read only if a rule needs them
	Groups []string
	// SignedInAgo is how long before its answer the provider last had the user sign in, by its own clock;
	// zero if it does not say.
	SignedInAgo time.Duration
}

// Redeem processes the provider's return: it checks that the return belongs to the attempt and comes from
// this provider, exchanges the code, once, and returns the identity that the ID token (oidc) or the user-info
// answer (oauth2) vouches for.
//
// Errors: ErrDeclined if the user said no at the provider; otherwise an *Error, which is no verdict. A second
// Redeem of the same return posts the code again, which the provider refuses: the caller spends its attempt
// first. The code is good for one post, so the context should outlive the browser's request; Redeem itself
// ends within twice the request timeout.
func (n *Network) Redeem(ctx context.Context, a Attempt, r Return) (Identity, error) {
	id, err := n.redeem(ctx, a, r)
	n.note(err)
	return id, err
}

func (n *Network) redeem(ctx context.Context, a Attempt, r Return) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, n.within)
	defer cancel()
	if !a.whole() || !a.StateIs(r.State) {
		return Identity{}, n.newError(StageAuthorization, ClassState, "the return belongs to another attempt")
	}
	p, err := n.provider(ctx)
	if err != nil {
		return Identity{}, err
	}
	if err := n.checkReturn(p, r); err != nil {
		return Identity{}, err
	}
	if n.protocol == netsettings.ProtocolOpenID2 {
		return n.openID.redeem(ctx, p, a, r)
	}
	token, err := p.oauth.Exchange(context.WithValue(ctx, oauth2.HTTPClient, n.client(p.publicOnly)), r.Code,
		oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, n.tokenError(err)
	}
	if n.protocol == netsettings.KindOIDC {
		return n.identifyOIDC(ctx, p, a, token)
	}
	return n.identifyOAuth2(ctx, p, token)
}

// checkReturn judges a return before its code is used. The issuer comes first, for errors too: an answer of
// another provider to this attempt is neither a code nor a refusal (RFC 9207 §2.4). For an oauth2 network
// without a configured issuer there is nothing to compare with; there the network's own redirect URI prevents
// the mix-up (RFC 9700 §4.4.2).
//
// consent_required is for requests with prompt=none (OpenID Connect Core 1.0 §3.1.2.6), which an oidc network
// never sends. LemonLDAP::NG sends it if the user was asked and refused.
func (n *Network) checkReturn(p *provider, r Return) error {
	switch {
	case r.Issuer != "" && n.settings.Issuer != "" && !n.settings.IsIssuer(r.Issuer):
		return n.newError(StageAuthorization, ClassIssuer, "the return comes from another issuer")
	case r.Issuer == "" && p.issuerRequired:
		return n.newError(StageAuthorization, ClassIssuer,
			"the return names no issuer, though the provider's metadata says it does")
	case r.Error != "" && r.forgotten:
		return n.newError(StageAuthorization, ClassRefused,
			"the user has forgotten the password there ("+forgottenByUser+")")
	case slices.Contains(declined, r.Error),
		r.Error == "consent_required" && n.settings.Kind == netsettings.KindOIDC:
		return ErrDeclined
	case r.Error != "":
		return n.refused(StageAuthorization, r.Error)
	case (r.openid != nil) != (n.protocol == netsettings.ProtocolOpenID2):
		return n.newError(StageAuthorization, ClassMalformed,
			"the return speaks another protocol than this network")
	case r.openid == nil && r.Code == "":
		return n.newError(StageAuthorization, ClassMalformed, "the return holds no code")
	}
	return nil
}

// identifyOAuth2 asks the user-info endpoint, the only place where plain OAuth 2 reports who signed in.
func (n *Network) identifyOAuth2(ctx context.Context, p *provider, token *oauth2.Token) (Identity, error) {
	info, err := n.askUserInfo(ctx, p, token)
	if err != nil {
		return Identity{}, err
	}
	return n.subjectOf(ctx, StageUserInfo, n.settings.SubjectClaim, token, info)
}

// identifyOIDC verifies the ID token and, if the subject claim is not in it or the operator set the endpoint,
// requests user info.
func (n *Network) identifyOIDC(ctx context.Context, p *provider, a Attempt, token *oauth2.Token) (Identity,
	error) {
	id, err := n.verifyIDToken(ctx, p, a, token)
	if err != nil {
		return Identity{}, err
	}
	claim := n.settings.SubjectClaim
	if n.settings.UserInfoEndpoint == "" && (id.has(claim) && n.reportsWanted(id) || p.userInfo == "") {
		return n.subjectOf(ctx, StageIDToken, claim, token, id)
	}
	info, err := n.askUserInfo(ctx, p, token)
	if err != nil {
		return Identity{}, err
	}
	// OpenID Connect Core 1.0 §5.3.2: otherwise another user's answer could be slipped in.
	if sub, err := info.text(netsettings.ClaimSubject); err != nil || sub != id.subject() {
		return Identity{}, n.newError(StageUserInfo, ClassSubject,
			"user info is about another subject than the ID token")
	}
	if id.has(claim) {
		return n.subjectOf(ctx, StageIDToken, claim, token, id, info)
	}
	return n.subjectOf(ctx, StageUserInfo, claim, token, info, id)
}

// subjectOf takes the subject from the first document, and the display name from the first that has one.
func (n *Network) subjectOf(ctx context.Context, stage, claim string, token *oauth2.Token,
	docs ...claims) (Identity, error) {
	subject, err := docs[0].text(claim)
	if err != nil {
		return Identity{}, n.newError(stage, ClassSubject, err.Error())
	}
	// Anybody can enter an address at the provider that it has not checked. Plain OAuth 2 defines no such
	// claim: there it may be missing.
	const verified = "email_verified"
	checked := n.isVerified(docs[0], verified) ||
		n.settings.Kind == netsettings.KindOAuth2 && !docs[0].has(verified)
	if strings.TrimPrefix(claim, "/") == "email" && !checked {
		return Identity{}, n.newError(stage, ClassSubject, "the provider has not verified the e-mail address")
	}
	return n.identity(ctx, stage, subject, token, docs...)
}

func (n *Network) identity(ctx context.Context, stage, subject string, token *oauth2.Token,
	docs ...claims) (Identity, error) {
	if subject == "" || len(subject) > netsettings.MaxSubjectBytes {
		return Identity{}, n.newError(stage, ClassSubject, "the subject is empty or too long")
	}
	if !netsettings.IsSubject(subject) {
		return Identity{}, n.newError(stage, ClassSubject,
			"the subject holds control or other invisible characters")
	}
	id := Identity{Subject: subject}
	for _, doc := range docs {
		if id.DisplayName == "" {
			id.DisplayName = doc.displayName(n.plan.Names)
		}
		id.SignedInAgo = max(id.SignedInAgo, doc.signedInAgo())
	}
	if err := n.addFacts(ctx, &id, token, docs); err != nil {
		return Identity{}, err
	}
	return id, nil
}
