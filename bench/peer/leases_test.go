// SPDX-License-Identifier: MIT

//go:build unix

package peer_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/oxygenhub/leader/bench/peer"
)

// TestLeasesRefuseAnOldVersion: two clients that have read the same lease cannot both change it, or two processes would lead.
func TestLeasesRefuseAnOldVersion(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(peer.NewLeases().Handler())
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.ContentType = "application/json"
	client, err := typed.NewForConfig(config)
	require.NoError(t, err)
	leases := client.Leases("bench")

	_, err = leases.Get(t.Context(), "job", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), err)
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "job"}}
	first, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = leases.Create(t.Context(), lease, metav1.CreateOptions{})
	assert.True(t, apierrors.IsAlreadyExists(err), err)

	for i, holder := range []string{"a", "b"} {
		mine := first.DeepCopy()
		mine.Spec.HolderIdentity = &holder
		_, err = leases.Update(t.Context(), mine, metav1.UpdateOptions{})
		assert.Equal(t, i > 0, apierrors.IsConflict(err), "update %d: %v", i, err)
	}
	now, err := leases.Get(t.Context(), "job", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "a", *now.Spec.HolderIdentity)
	assert.NotEqual(t, first.ResourceVersion, now.ResourceVersion)
}
