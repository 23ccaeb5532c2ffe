import Dialing
import HTTPCodec
import RedisProtocol
import TLSEngine

/// Where and how to connect to one server, with the files of its TLS settings read.
package struct RedisEndpoint: Sendable {
  package let address: RedisAddress
  let credentials: RedisCredentials
  let database: Int
  /// nil: no TLS.
  let tls: RefreshableTLSContext?

  /// Reads the files of `tls` if the URL is `rediss://`, unless another user of `cache` has the same settings. Blocks.
  ///
  /// Verification is of the URL's host, and of the address that Sentinel reports (`at`), unless the settings have a server name.
  package init(
    _ url: RedisURL, _ tls: TLSClientSettings, with cache: inout TLSContextCache
  ) throws(TLSSettingsError) {
    address = RedisAddress(host: url.host, port: url.port)
    credentials = url.credentials
    database = url.database
    var tls = tls
    // Redis has no name in the registry of ALPN.
    tls.applicationProtocols = []
    self.tls = url.isSecure ? try cache.context(for: tls, fileTimeout: HTTPEndpoint.fileTimeout) : nil
  }

  private init(_ address: RedisAddress, as other: RedisEndpoint) {
    self.address = address
    credentials = other.credentials
    database = other.database
    tls = other.tls
  }

  /// The endpoint with the same settings at another address.
  package func at(_ address: RedisAddress) -> RedisEndpoint { RedisEndpoint(address, as: self) }
}
