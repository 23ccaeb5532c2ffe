/// The client that uses a part of a total: its principal, and its address.
///
/// Both are hashes that are keyed with a secret of this process, so that no client can choose the hash of another
/// client.
@usableFromInline
package struct TotalUser: Hashable, Sendable {
  /// 0 without credentials.
  @usableFromInline package let principal: UInt64
  @usableFromInline package let address: UInt64

  @inlinable
  package init(principal: UInt64 = 0, address: UInt64) {
    self.principal = principal
    self.address = address
  }

  /// - Parameter principal: empty without credentials.
  package init(_ principal: String, at address: some Hashable) {
    self.init(principal: Self.principal(principal), at: address)
  }

  package init(principal: UInt64, at address: some Hashable) {
    self.init(principal: principal, address: Self.hash(address))
  }

  /// The hash of a principal: 0 if it is empty.
  package static func principal(_ name: String) -> UInt64 { name.isEmpty ? 0 : hash(name) }

  /// The principal, or the address without credentials. A total with a reserve counts by this value.
  package var client: UInt64 { principal == 0 ? address : principal }

  private static func hash(_ value: some Hashable) -> UInt64 {
    var hasher = Hasher()
    hasher.combine(value)
    return max(1, UInt64(bitPattern: Int64(hasher.finalize())))
  }
}
