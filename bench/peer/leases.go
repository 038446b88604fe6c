// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespace is where the leases are.
const namespace = "bench"

// Leases is what the election of client-go needs of a Kubernetes API server: get, create and update of leases, which are kept
// in memory. Like the API server it refuses an update whose resourceVersion is not the current one.
type Leases struct {
	mu     sync.Mutex
	leases map[string]coordination.Lease
	last   int // resourceVersion
}

// NewLeases returns a server without a lease.
func NewLeases() *Leases { return &Leases{leases: make(map[string]coordination.Lease)} }

// Handler serves the paths of leases.
func (l *Leases) Handler() http.Handler {
	const all = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK)(l.get(r.PathValue("name")))
	})
	mux.HandleFunc("POST "+all, func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusCreated)(l.put(r, (*Leases).createLocked))
	})
	mux.HandleFunc("PUT "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK)(l.put(r, (*Leases).updateLocked))
	})
	return mux
}

func (l *Leases) get(name string) (coordination.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.leases[name]
	if !ok {
		return lease, apierrors.NewNotFound(coordination.Resource("leases"), name)
	}
	return lease, nil
}

// put stores the lease that is in a request, if check lets it pass.
func (l *Leases) put(r *http.Request, check func(*Leases, coordination.Lease) error) (coordination.Lease, error) {
	var lease coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&lease); err != nil {
		return lease, apierrors.NewBadRequest(err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := check(l, lease); err != nil {
		return lease, err
	}
	l.last++
	lease.ResourceVersion = strconv.Itoa(l.last)
	lease.TypeMeta = metav1.TypeMeta{APIVersion: coordination.SchemeGroupVersion.String(), Kind: "Lease"}
	l.leases[lease.Name] = lease
	return lease, nil
}

func (l *Leases) createLocked(lease coordination.Lease) error {
	if _, ok := l.leases[lease.Name]; ok {
		return apierrors.NewAlreadyExists(coordination.Resource("leases"), lease.Name)
	}
	return nil
}

func (l *Leases) updateLocked(lease coordination.Lease) error {
	switch old, ok := l.leases[lease.Name]; {
	case !ok:
		return apierrors.NewNotFound(coordination.Resource("leases"), lease.Name)
	case old.ResourceVersion != lease.ResourceVersion:
		return apierrors.NewConflict(coordination.Resource("leases"), lease.Name, nil)
	}
	return nil
}

// answer writes a lease, or why there is none.
func answer(w http.ResponseWriter, code int) func(coordination.Lease, error) {
	return func(lease coordination.Lease, err error) {
		var body any = lease
		var refused apierrors.APIStatus
		if errors.As(err, &refused) {
			s := refused.Status()
			s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			code, body = int(s.Code), s
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // who has gone needs no answer
	}
}
