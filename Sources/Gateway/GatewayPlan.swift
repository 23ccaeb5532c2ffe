import API
import Configuration
import Inbox
import Reactor
import Sessions
import Upstream

/// Everything that is made from the settings before a socket is opened: what can be wrong with a configuration is found here.
///
/// `serve`, `check-config` and a reload all go through it, so that none accepts what another refuses.
package struct GatewayPlan: Sendable {
  package let settings: GatewaySettings
  let clients: [SocketAddress]
  let management: [SocketAddress]
  let access: Access
  /// The session `default` first, if there is one; then the named ones, in the order of the file.
  package let sessions: [SessionPlan]

  /// Reads the files that the settings name. Blocks.
  package init(_ settings: GatewaySettings) throws(SettingProblems) {
    self.settings = settings
    let listeners = ListenerPlan(settings.listeners)
    clients = listeners.clients
    management = listeners.management
    var problems = listeners.problems
    var access: BrowserAccess?
    do throws(SettingProblem) { access = try BrowserAccess(settings.http) } catch { problems.append(error) }
    var upstream: SharedSettings?
    do throws(SettingProblem) { upstream = try SharedSettings(settings.upstream) } catch { problems.append(error) }
    guard problems.isEmpty, let access, let upstream else { throw SettingProblems(problems) }
    self.access = Access(access)
    let retention = Retention(
      count: settings.delivery.messages, bytes: settings.delivery.bytes, age: settings.delivery.age)
    sessions = [SessionPlan(name: Session.defaultName, settings: upstream, retention: retention)]
  }
}

/// The addresses to listen on.
private struct ListenerPlan {
  private(set) var clients: [SocketAddress] = []
  private(set) var management: [SocketAddress] = []
  private(set) var problems: [SettingProblem] = []
  private var seen: Set<SocketAddress> = []

  init(_ settings: GatewaySettings.Listeners) {
    clients = read(settings.http, key: "listeners.http")
    management = read(settings.management, key: "listeners.management")
  }

  private mutating func read(_ texts: [String], key: String) -> [SocketAddress] {
    if texts.isEmpty { problems.append(SettingProblem(key, .none, "it is empty: give at least one address")) }
    var addresses: [SocketAddress] = []
    for (index, text) in texts.enumerated() {
      guard let address = ListenerAddress.parse(text) else {
        problems.append(SettingProblem(key, .item(index), "it takes \(ListenerAddress.expectation)"))
        continue
      }
      // Port 0 is another one each time.
      if !seen.insert(address).inserted, address.port != 0 {
        problems.append(SettingProblem(key, .item(index), "another listener has this address"))
      }
      addresses.append(address)
    }
    return addresses
  }
}
