import Profiles
import Upstream
import UpstreamProtocol
import WebSocketCodec

/// A profile: the configuration of sessions that clients create, with variables whose values the clients choose.
package struct SessionProfile: Equatable, Sendable {
  package let name: String
  /// The configuration of the sessions. Its `upstream` has no URLs: `url` and `fallbackURLs` have them, with variables.
  package var configuration = SessionConfiguration()
  package var variables: [ProfileVariable] = []
  package var rules = ConnectionRules()
  /// The template of the URL; nil if it is not set.
  package var url: URLTemplate?
  package var fallbackURLs: [URLTemplate] = []

  package init(name: String) { self.name = name }

  /// The prefix of the profile's setting paths.
  package var pathPrefix: String { "profiles.\(name)." }

  package var urls: [URLTemplate] { (url.map { [$0] } ?? []) + fallbackURLs }

  /// The settings of a session with these values, which `variables` has accepted.
  package func upstream(_ values: [String: String]) throws(VariableError) -> UpstreamSettings {
    guard let url else { throw VariableError("the profile has no URL") }
    var upstream = configuration.upstream
    var fallbackURLs: [WebSocketURL] = []
    upstream.url = try url.url(values)
    for template in self.fallbackURLs { fallbackURLs.append(try template.url(values)) }
    upstream.fallbackURLs = fallbackURLs
    upstream.connectionRules = rules
    for url in upstream.urls {
      if let reason = rules.refusal(ofHost: url.host, isProxied: upstream.proxy(for: url) != nil) {
        throw VariableError(reason)
      }
    }
    // The value of a variable is printable ASCII, so it cannot end a field.
    upstream.fields = upstream.fields.map { field in
      RequestField(name: field.name, value: VariableText(field.value).replaced { values[$0] ?? "{\($0)}" })
    }
    var conventions = upstream.conventions
    do throws(TemplateVariableError) {
      for index in conventions.onOpen.indices {
        conventions.onOpen[index].send = try conventions.onOpen[index].send?.replacing(values)
      }
      for index in conventions.onClose.indices {
        conventions.onClose[index] = try conventions.onClose[index].replacing(values)
      }
      for index in conventions.acknowledgements.indices {
        let own = conventions.acknowledgements[index]
        conventions.acknowledgements[index] = UpstreamConventions.Acknowledgement(
          match: own.match, send: try own.send.replacing(values), when: own.moment)
      }
      conventions.client.message = try conventions.client.message?.replacing(values)
      conventions.server.reply = try conventions.server.reply?.replacing(values)
      try conventions.replaceInProtocols(values)
    } catch {
      throw VariableError("variable '\(error.variable)' \(error.expectation)")
    }
    // Sessions without variables in messages use the conventions of the profile.
    if conventions != upstream.conventions { upstream.conventions = conventions }
    return upstream
  }

  /// The settings with a sample URL, in which every variable has the value `x`. The sample URL has the same scheme as
  /// the URL of each session.
  package var sample: UpstreamSettings {
    var upstream = configuration.upstream
    upstream.url = url?.sample
    upstream.fallbackURLs = fallbackURLs.map(\.sample)
    return upstream
  }
}
